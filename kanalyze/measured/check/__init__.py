"""Static estimates of recorded launches beside what was measured."""
