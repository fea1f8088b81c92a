//! Allocates every kind of memory until its registry is full, uses it, gives all of it back, and
//! shows what is refused on the way.
//!
//! ```text
//! cargo run --release -p cumem --example tour [-- --driver real|sim|PATH]
//! ```
//!
//! Without `--driver`, the real driver is used where there is one, and the simulated one
//! elsewhere. The exit code is 0 if nothing was lost, 1 if anything was or a check failed, and 2 if
//! the wanted driver can't be used.

use std::error::Error;
use std::process::ExitCode;
use std::ptr::NonNull;

use cumem::sys::Driver;
use cumem::{
    AllocFailure, Backend, DevicePreferredBackend, MemoryBackend, MemoryKind, PinnedBackend,
    ReleaseError, UnifiedBackend, buckets_for, from_device_ptr, to_device_ptr,
};
use cumem_sim::Sim;

/// Every backend here holds exactly so many pointers.
const CAPACITY: usize = 256;
const BUCKETS: usize = buckets_for(CAPACITY);

/// Bytes of each block: small, so that the whole tour stays within 16 MiB for each kind.
const BLOCK: usize = 64 << 10;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--driver", wanted] => Some(wanted),
        _ => {
            eprintln!("usage: tour [--driver real|sim|PATH]");
            return ExitCode::from(2);
        }
    };
    let chosen = match choose_driver(wanted) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match tour(&chosen) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(lost) => {
            eprintln!("error: {lost} allocations were lost");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The driver to tour with, and the simulation behind it if there is one.
struct Chosen {
    driver: Driver,
    sim: Option<Sim>,
}

fn choose_driver(wanted: Option<&str>) -> Outcome<Chosen> {
    match wanted {
        Some("sim") => simulated(),
        Some("real") => {
            let driver = Driver::load()?;
            announce_loaded("the real CUDA driver", &driver);
            Ok(Chosen { driver, sim: None })
        }
        Some(path) => {
            let driver = Driver::load_from(path)?;
            announce_loaded("the CUDA driver that was asked for", &driver);
            Ok(Chosen { driver, sim: None })
        }
        None => match Driver::load() {
            Ok(driver) => {
                announce_loaded("the real CUDA driver", &driver);
                Ok(Chosen { driver, sim: None })
            }
            Err(error) => {
                println!("no usable CUDA driver on this machine: {error}");
                println!();
                simulated()
            }
        },
    }
}

fn announce_loaded(what: &str, driver: &Driver) {
    println!("driver: {what}, {}", driver.label());
}

fn simulated() -> Outcome<Chosen> {
    let sim = Sim::builder().build();
    let driver = sim.driver()?;
    println!("driver: the SIMULATED driver (cumem-sim): no GPU is involved");
    Ok(Chosen {
        driver,
        sim: Some(sim),
    })
}

fn tour(chosen: &Chosen) -> Outcome<usize> {
    let driver = &chosen.driver;
    let device = driver.device_get(0)?;
    println!(
        "device: {}, driver API {}",
        driver.device_get_name(device)?,
        version(driver.driver_version()),
    );

    // The backends find their context themselves; the copy calls below need one to be current.
    let context = driver.device_primary_ctx_retain(device)?;
    // SAFETY: the context was retained just above.
    unsafe { driver.ctx_push_current(context) }?;

    let unified = UnifiedBackend::<BUCKETS>::with_capacity(CAPACITY).with_driver(driver.clone());
    let device_preferred =
        DevicePreferredBackend::<BUCKETS>::with_capacity(CAPACITY).with_driver(driver.clone());
    let pinned = PinnedBackend::<BUCKETS>::with_capacity(CAPACITY).with_driver(driver.clone());
    let rows = [
        visit(&unified, chosen)?,
        visit(&device_preferred, chosen)?,
        visit(&pinned, chosen)?,
    ];

    driver.ctx_pop_current()?;
    // SAFETY: everything that was allocated in the context has been released.
    unsafe { driver.device_primary_ctx_release(device) }?;

    println!();
    println!(
        "{:18} {:>9} {:>9} {:>9} {:>6}",
        "kind", "allocated", "refused", "released", "lost"
    );
    for row in &rows {
        println!(
            "{:18} {:>9} {:>9} {:>9} {:>6}",
            row.kind, row.allocated, row.refused, row.released, row.lost
        );
    }
    if let Some(sim) = &chosen.sim {
        println!(
            "the simulated driver's own books: {} live allocations",
            sim.books().live.len()
        );
    }
    Ok(rows.iter().map(|row| row.lost).sum())
}

/// What happened to one kind of memory.
struct Row {
    kind: &'static str,
    allocated: usize,
    refused: usize,
    released: usize,
    lost: usize,
}

fn visit<K: MemoryKind>(backend: &Backend<K, BUCKETS>, chosen: &Chosen) -> Outcome<Row> {
    let driver = &chosen.driver;
    let kind = backend.kind_name();
    println!();
    println!("{kind}: room for {} pointers", backend.capacity());

    let mut blocks = Vec::new();
    for _ in 0..CAPACITY {
        blocks.push(backend.allocate(BLOCK, 256)?);
    }
    println!("  allocated {} blocks of {BLOCK} bytes", blocks.len());

    let asked_before = backend.statistics().driver_allocations;
    let refusal = match backend.allocate(BLOCK, 256) {
        Ok(_) => return Err("the registry took more than its capacity".into()),
        Err(error) => error,
    };
    if !matches!(refusal.failure(), AllocFailure::RegistryFull { .. }) {
        return Err(refusal.into());
    }
    let raw = backend.allocate_raw(BLOCK);
    let asked = backend.statistics().driver_allocations - asked_before;
    if asked != 0 || !raw.is_null() {
        return Err("a full registry still asked the driver for memory".into());
    }
    println!("  refused block {}: {refusal}", CAPACITY + 1);
    println!("  the raw entry point answered null; driver calls for the two refusals: {asked}");

    for (index, block) in blocks.iter().enumerate() {
        write_and_read_back(driver, block.as_ptr(), block.size(), index)?;
    }
    println!(
        "  wrote and read back {} blocks from the host and through the driver's copies",
        blocks.len()
    );

    let addresses: Vec<NonNull<u8>> = blocks.into_iter().map(|block| block.into_raw().0).collect();
    let mut released = 0;
    for &ptr in &addresses {
        // SAFETY: the blocks were given up by their owners just above, and every copy is done.
        unsafe { backend.release(ptr) }?;
        released += 1;
    }
    // The driver itself must no longer know any of them.
    let lost = addresses
        .iter()
        .filter(|ptr| {
            driver
                .pointer_memory_type(to_device_ptr(ptr.as_ptr()))
                .is_ok()
        })
        .count();
    println!("  released {released}; the driver still knows {lost} of them");

    let local = 0_u8;
    for (what, ptr) in [
        ("a second release", addresses[0]),
        ("a pointer to the stack", NonNull::from(&local)),
    ] {
        // SAFETY: neither pointer is live memory of the backend, so it must refuse both.
        match unsafe { backend.release(ptr) } {
            Err(error @ ReleaseError::NotOwned { .. }) => println!("  refused {what}: {error}"),
            other => return Err(format!("{what} was not refused: {other:?}").into()),
        }
    }

    let held = backend.statistics();
    Ok(Row {
        kind,
        allocated: addresses.len(),
        refused: held.registry_full as usize,
        released,
        lost: lost.max(held.live).max(held.lost as usize),
    })
}

/// Fills a block from the host and checks it through a copy by the driver, then the other way.
fn write_and_read_back(driver: &Driver, ptr: *mut u8, size: usize, seed: usize) -> Outcome<()> {
    let pattern = |step: usize| (0..size).map(move |at| (at * 31 + seed * 7 + step) as u8);
    let device_ptr = to_device_ptr(ptr);

    let written: Vec<u8> = pattern(1).collect();
    let mut copied = vec![0_u8; size];
    // SAFETY: the block is `size` bytes that the host may touch, and no kernel or copy uses it.
    unsafe { ptr.copy_from_nonoverlapping(written.as_ptr(), size) };
    // SAFETY: both sides are `size` bytes long, and a context is current.
    unsafe { driver.memcpy_dtoh(copied.as_mut_ptr().cast(), device_ptr, size) }?;
    if copied != written {
        return Err("the driver's copy did not show what the host wrote".into());
    }

    let sent: Vec<u8> = pattern(2).collect();
    // SAFETY: as above, the other way.
    unsafe { driver.memcpy_htod(device_ptr, sent.as_ptr().cast(), size) }?;
    // A copy from pageable memory may return when the source was staged, before it has arrived.
    driver.ctx_synchronize()?;
    let mut read = vec![0_u8; size];
    // SAFETY: the copy has arrived, and the block is `size` bytes that the host may read.
    unsafe {
        from_device_ptr(device_ptr).copy_to_nonoverlapping(read.as_mut_ptr(), size);
    }
    if read != sent {
        return Err("the host did not see what the driver copied".into());
    }
    Ok(())
}

fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}
