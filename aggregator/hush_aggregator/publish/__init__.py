"""What is released, when and where: estimates, steps, retention, the webhook and Home Assistant."""
