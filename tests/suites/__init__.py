"""The suites that the field has for its own programs, with a stock kernel and with this one in its place."""
