"""From an unscheduled module to a scheduled one, as a TPU compiler would."""
