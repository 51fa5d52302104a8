"""What a whole deployment of a release left behind, and that today's code goes on with it."""
