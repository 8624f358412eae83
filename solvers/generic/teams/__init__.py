"""Which devices form teams: partitions of the devices, and problems with a fixed one."""
