"""Receive, decode and admit reports, and log what was counted."""
