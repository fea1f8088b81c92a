//! Device memory that grows in place: the address stays, so what points into it stays right.
//!
//! ```text
//! cargo run -p cumem --example virtual_memory
//! ```

use cumem::VirtualBuffer;

mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = support::driver()?;
    let mut buffer = VirtualBuffer::reserve_with(&driver, 0, 1 << 30)?;
    println!(
        "{} bytes of addresses, {} of memory, which comes in pieces of {}",
        buffer.reserved(),
        buffer.mapped(),
        buffer.granule()
    );
    let address = buffer.device_ptr();
    for wanted in [1, 5 << 20, 64 << 20] {
        buffer.grow_to(wanted)?;
        assert_eq!(buffer.device_ptr(), address);
        println!("for {wanted} bytes, {} are there", buffer.mapped());
    }
    Ok(())
}
