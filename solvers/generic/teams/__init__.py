"""Teams of devices: partitions of the devices, and problems with a fixed partition."""
