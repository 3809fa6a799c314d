#!/bin/sh
# The simulated driver answers what NVIDIA's were seen to answer without a device.
exec python3 -B tests/real_drivers/recorded.py
