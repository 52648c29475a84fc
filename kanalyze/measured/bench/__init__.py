"""Measuring kernels on this machine's GPU: right results first, then times, then counters."""
