"""Wheels: what is wanted, and what pip is asked."""
