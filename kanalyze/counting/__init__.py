"""One memory access in one launch, exactly as the hardware counts it."""
