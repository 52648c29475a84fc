"""What the commands return: frozen types and their JSON."""
