"""The front door: one command line that joins the rooms."""
