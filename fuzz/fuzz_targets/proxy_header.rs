#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onceward_fuzz::proxy_header::holds(data));
