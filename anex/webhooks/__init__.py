"""Events told to other people's servers: one webhook endpoint an organization, and the callbacks of single ingests."""
