//! How a connection is made and how it ends, as the server sees it.
