"""One file a cause or kin: what to look at, what to undo, what to say."""
