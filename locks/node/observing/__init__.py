"""What observers are told: times, counters, records, and answers to questions."""
