"""Every order of events in small worlds: searches, and which states and orders need not be tried."""
