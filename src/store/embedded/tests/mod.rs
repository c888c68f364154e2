//! Tests of this store alone.
