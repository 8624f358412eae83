"""Devices by trade name: published peaks, and the shares of them that are sustained."""
