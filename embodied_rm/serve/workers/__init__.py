"""Child process of the service that decodes images, so that they can only stop or crash the child."""
