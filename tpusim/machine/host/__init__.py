"""The host behind the queues of a device."""
