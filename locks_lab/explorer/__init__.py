"""Every order of events in small worlds: searches, and the states and orders that can be skipped."""
