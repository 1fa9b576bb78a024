"""Security: principals, authentication mechanisms, access control, TLS and the audit log."""
