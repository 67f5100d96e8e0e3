"""The pages of the service, for a browser: videos judged as they are dropped, and the runs under way."""
