"""Telemetry from anywhere: what others wrote, read into the one table that the analysis works on."""
