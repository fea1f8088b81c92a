//! What a backend costs over the raw driver calls, with cudarc beside both, in one process.
//!
//! ```text
//! bench-backends [--driver real|sim|PATH] [--out FILE] [--quick]
//! ```
//!
//! For each kind of memory and each size, the three are measured in turn, many times over, and the
//! medians compared: so a slow moment of the machine hits all three. A pair is one allocation and
//! its release. The exit code is 1 if a real driver's figures, not only a `--quick` run's, are over the
//! allowance: on a machine with noisy neighbours, run it again. On the simulated driver the figures say nothing about a GPU, and cudarc, which finds
//! the driver itself, is left out.

use std::error::Error;
use std::ffi::c_void;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use cumem_backend::{Backend, MemoryBackend, MemoryKind, buckets_for};
use cumem_device::{Device, DevicePreferred, StreamOrdered};
use cumem_pinned::Pinned;
use cumem_sim::Sim;
use cumem_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, CUmem_advise, CUmemLocation,
    CUresult, CUstream, Driver,
};
use cumem_unified::Unified;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CAPACITY: usize = 4096;
const BUCKETS: usize = buckets_for(CAPACITY);
const SIZES: [usize; 3] = [4 << 10, 1 << 20, 32 << 20];

/// What the layer may cost: 3% of the raw pair or 100 ns, whichever is more.
fn allowed(raw: f64) -> f64 {
    (raw * 0.03).max(100.0)
}

struct Options {
    driver: Option<String>,
    out: Option<String>,
    quick: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        driver: None,
        out: None,
        quick: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--driver" => options.driver = arguments.next(),
            "--out" => options.out = arguments.next(),
            "--quick" => options.quick = true,
            _ => return Err("usage: bench-backends [--driver D] [--out FILE] [--quick]".into()),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Outcome<()> {
    let (driver, real) = match options.driver.as_deref() {
        Some("sim") => (Sim::builder().build().driver()?, false),
        Some("real") => (Driver::load()?, true),
        Some(path) => {
            let driver = Driver::load_from(path)?;
            let name = driver.device_get_name(driver.device_get(0)?)?;
            (driver, !name.contains("cumem-sim"))
        }
        None => match Driver::load() {
            Ok(driver) => (driver, true),
            Err(_) => (Sim::builder().build().driver()?, false),
        },
    };
    if !real {
        println!("on a SIMULATED driver: the figures say nothing about a GPU");
    }
    let device = driver.device_get(0)?;
    println!("{} on {}", driver.label(), driver.device_get_name(device)?);
    // The thread has the primary context current, as in a program that uses the CUDA runtime.
    let context = driver.device_primary_ctx_retain(device)?;
    // SAFETY: the context was retained just above.
    unsafe { driver.ctx_push_current(context) }?;

    let bench = Bench {
        raw: Raw::of(&driver)?,
        cudarc: if real { Some(Cudarc::new()?) } else { None },
        driver: &driver,
        rounds: if options.quick { 11 } else { 41 },
    };
    let mut rows = Vec::new();
    println!(
        "{:18} {:>9} {:>12} {:>12} {:>9} {:>9} {:>7} {:>12}",
        "kind", "bytes", "raw ns", "cumem ns", "over ns", "allowed", "", "cudarc ns"
    );
    for size in SIZES {
        bench.kind::<Unified>(size, &mut rows)?;
        bench.kind::<DevicePreferred>(size, &mut rows)?;
        bench.kind::<Device>(size, &mut rows)?;
        bench.kind::<StreamOrdered>(size, &mut rows)?;
        bench.kind::<Pinned>(size, &mut rows)?;
    }
    let refusal = bench.full_registry()?;
    println!(
        "a full registry of {CAPACITY} refuses in {refusal:.0} ns (allowed 2000), and calls no driver"
    );
    let report = json!({
        "driver": driver.label(),
        "device": driver.device_get_name(device)?,
        "driver_version": driver.driver_version(),
        "simulated": !real,
        "pairs": rows,
        "full_registry_refusal_ns": refusal,
    });
    if let Some(path) = &options.out {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    let late = rows
        .iter()
        .filter(|row| row["within"] == json!(false))
        .count();
    println!("{late} of {} cells over the allowance", rows.len());
    if real && !options.quick && (late > 0 || refusal > 2000.0) {
        return Err("over the allowance".into());
    }
    Ok(())
}

/// # Safety
/// The address is that of a C function of type `F`.
unsafe fn function<F: Copy>(address: *const c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: the caller promises the type, and a function pointer is its address.
    unsafe { std::mem::transmute_copy(&address) }
}

/// The driver's functions, called without anything between.
struct Raw {
    managed: unsafe extern "C" fn(*mut CUdeviceptr, usize, u32) -> CUresult,
    advise: unsafe extern "C" fn(CUdeviceptr, usize, CUmem_advise, CUmemLocation) -> CUresult,
    device: unsafe extern "C" fn(*mut CUdeviceptr, usize) -> CUresult,
    free: unsafe extern "C" fn(CUdeviceptr) -> CUresult,
    ordered: unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult,
    free_ordered: unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult,
    pinned: unsafe extern "C" fn(*mut *mut c_void, usize, u32) -> CUresult,
    free_pinned: unsafe extern "C" fn(*mut c_void) -> CUresult,
}

impl Raw {
    fn of(driver: &Driver) -> Outcome<Self> {
        let find = |name: &str| -> Outcome<*const c_void> {
            driver
                .symbols()
                .find(|(symbol, _)| symbol.name() == name)
                .and_then(|(_, found)| found)
                .map(|(address, _)| address)
                .ok_or_else(|| format!("this driver lacks {name}").into())
        };
        // SAFETY: each address is that of the driver's function of that name, whose signature is
        // the field's.
        unsafe {
            Ok(Self {
                managed: function(find("cuMemAllocManaged")?),
                advise: function(find("cuMemAdvise_v2")?),
                device: function(find("cuMemAlloc_v2")?),
                free: function(find("cuMemFree_v2")?),
                ordered: function(find("cuMemAllocAsync")?),
                free_ordered: function(find("cuMemFreeAsync")?),
                pinned: function(find("cuMemHostAlloc")?),
                free_pinned: function(find("cuMemFreeHost")?),
            })
        }
    }

    /// One allocation and its release, as the kind does them: chosen here, so that the measured call
    /// chooses nothing.
    fn pair<'a>(&'a self, kind: &str, size: usize) -> Box<dyn Fn() + 'a> {
        const OK: CUresult = CUresult::CUDA_SUCCESS;
        const NULL: CUstream = ptr::null_mut();
        // SAFETY, for each of the calls below: each pointer is a local to write to, and what was
        // allocated is freed unused, through the entry point that belongs to it.
        match kind {
            "unified" => Box::new(move || {
                let mut pointer = 0;
                // SAFETY: see above.
                let codes =
                    unsafe { [(self.managed)(&mut pointer, size, 1), (self.free)(pointer)] };
                assert!(codes == [OK; 2]);
            }),
            "device-preferred" => Box::new(move || {
                let mut pointer = 0;
                let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
                let location = CUmemLocation::device(0);
                // SAFETY: see above.
                let codes = unsafe {
                    [
                        (self.managed)(&mut pointer, size, 1),
                        black_box((self.advise)(pointer, size, advice, location)),
                        (self.free)(pointer),
                    ]
                };
                assert!(codes[0] == OK && codes[2] == OK);
            }),
            "device" => Box::new(move || {
                let mut pointer = 0;
                // SAFETY: see above.
                let codes = unsafe { [(self.device)(&mut pointer, size), (self.free)(pointer)] };
                assert!(codes == [OK; 2]);
            }),
            "stream-ordered" => Box::new(move || {
                let mut pointer = 0;
                // SAFETY: see above.
                let codes = unsafe {
                    [
                        (self.ordered)(&mut pointer, size, NULL),
                        (self.free_ordered)(pointer, NULL),
                    ]
                };
                assert!(codes == [OK; 2]);
            }),
            _ => Box::new(move || {
                let mut host = ptr::null_mut();
                let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
                // SAFETY: see above.
                let codes = unsafe {
                    [
                        (self.pinned)(&mut host, size, flags),
                        (self.free_pinned)(host),
                    ]
                };
                assert!(codes == [OK; 2]);
            }),
        }
    }
}

/// cudarc, as its users call it.
struct Cudarc {
    context: std::sync::Arc<cudarc::driver::CudaContext>,
    stream: std::sync::Arc<cudarc::driver::CudaStream>,
}

impl Cudarc {
    fn new() -> Outcome<Self> {
        let context = cudarc::driver::CudaContext::new(0)?;
        let stream = context.default_stream();
        Ok(Self { context, stream })
    }

    /// One allocation and its release; `None` where cudarc has no such memory.
    fn pair(&self, kind: &str, size: usize) -> Option<()> {
        // SAFETY: nothing reads the memory, and it is freed at once.
        unsafe {
            match kind {
                "unified" => {
                    black_box(self.context.alloc_unified::<u8>(size, true).ok()?);
                }
                "device" => {
                    let pointer = cudarc::driver::result::malloc_sync(size).ok()?;
                    cudarc::driver::result::free_sync(black_box(pointer)).ok()?;
                }
                "stream-ordered" => {
                    black_box(self.stream.alloc::<u8>(size).ok()?);
                }
                "pinned" => {
                    let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
                    black_box(
                        self.context
                            .alloc_pinned_with_flags::<u8>(size, flags)
                            .ok()?,
                    );
                }
                _ => return None,
            }
        }
        Some(())
    }
}

struct Bench<'a> {
    raw: Raw,
    cudarc: Option<Cudarc>,
    driver: &'a Driver,
    rounds: usize,
}

impl Bench<'_> {
    fn kind<K: MemoryKind>(&self, size: usize, rows: &mut Vec<Value>) -> Outcome<()> {
        let backend: Box<Backend<K, BUCKETS>> =
            Box::new(Backend::with_capacity(CAPACITY).with_driver(self.driver.clone()));
        let ours = || {
            let pointer = backend.allocate_raw(size);
            assert!(!pointer.is_null());
            // SAFETY: the memory is unused.
            assert!(unsafe { backend.release_raw(black_box(pointer)) });
        };
        let raw = self.raw.pair(K::NAME, size);
        let cudarc = || {
            self.cudarc
                .as_ref()
                .and_then(|cudarc| cudarc.pair(K::NAME, size))
        };
        // Everything once unmeasured, and enough pairs a round for the clock.
        raw();
        ours();
        let has_cudarc = cudarc().is_some();
        let start = Instant::now();
        raw();
        let once = start.elapsed().as_secs_f64();
        let pairs = ((0.004 / once.max(1e-7)) as usize).clamp(1, 2000);
        let rounds = if once > 0.001 {
            (self.rounds / 4).max(5)
        } else {
            self.rounds
        };
        let mut times: [Vec<f64>; 3] = Default::default();
        for round in 0..rounds {
            // In turns that begin with another one each time.
            for turn in 0..3 {
                match (round + turn) % 3 {
                    0 => times[0].push(per_pair(pairs, &raw)),
                    1 => times[1].push(per_pair(pairs, ours)),
                    _ if has_cudarc => times[2].push(per_pair(pairs, || {
                        black_box(cudarc());
                    })),
                    _ => {}
                }
            }
        }
        // The difference of each round, not of the medians: both halves saw the same moment.
        let over = median(
            times[0]
                .iter()
                .zip(&times[1])
                .map(|(raw, ours)| ours - raw)
                .collect(),
        );
        let [raw, ours, other] = times.map(median);
        let within = over <= allowed(raw);
        let mut line = String::new();
        write!(
            line,
            "{:18} {size:>9} {raw:>12.0} {ours:>12.0} {over:>9.0} {:>9.0} {:>7}",
            K::NAME,
            allowed(raw),
            if within { "within" } else { "OVER" },
        )?;
        if has_cudarc {
            write!(line, " {other:>12.0}")?;
        }
        println!("{line}");
        rows.push(json!({
            "kind": K::NAME,
            "bytes": size,
            "raw_ns": raw,
            "cumem_ns": ours,
            "over_ns": over,
            "allowed_ns": allowed(raw),
            "within": within,
            "cudarc_ns": has_cudarc.then_some(other),
        }));
        Ok(())
    }

    /// Nanoseconds of one refusal by a full registry.
    fn full_registry(&self) -> Outcome<f64> {
        let backend: Box<Backend<Device, BUCKETS>> =
            Box::new(Backend::with_capacity(CAPACITY).with_driver(self.driver.clone()));
        for _ in 0..CAPACITY {
            if backend.allocate_raw(512).is_null() {
                return Err("could not fill the registry".into());
            }
        }
        let asked = backend_calls(&backend);
        let times = (0..self.rounds)
            .map(|_| {
                per_pair(200, || {
                    assert!(backend.allocate_raw(black_box(512)).is_null());
                })
            })
            .collect();
        assert_eq!(backend_calls(&backend), asked, "the driver was called");
        Ok(median(times))
    }
}

fn backend_calls(backend: &Backend<Device, BUCKETS>) -> u64 {
    backend.statistics().driver_allocations
}

fn per_pair(pairs: usize, mut pair: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..pairs {
        pair();
    }
    start.elapsed().as_nanos() as f64 / pairs as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
