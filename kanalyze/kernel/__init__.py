"""The static report of one kernel."""
