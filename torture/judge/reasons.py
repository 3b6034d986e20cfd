"""Why a library does what the table shows, by its documents or its source: one line for each kind of bad cell."""

REASONS = {
}
