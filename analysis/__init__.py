"""What the records say: step times, batch size, tier verdict, report."""
