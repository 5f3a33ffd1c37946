"""Data for observers: times, counters, records, and answers to questions."""
