#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onceward_fuzz::form::holds(data));
