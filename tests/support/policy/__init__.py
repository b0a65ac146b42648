"""Messages, hostile and honest texts, and the judge of what the policy lets pass; the fuzzers use them as well."""
