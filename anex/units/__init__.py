"""GPU units: who serves which model, whether its engine is ready, and the leases it holds."""
