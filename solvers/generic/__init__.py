"""Methods that need only what every objective offers: a score, supported devices, classes of ops."""
