"""What the figures share: the stack, the texts they send, meters and the machine they ran on."""
