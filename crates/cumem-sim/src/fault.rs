//! Calls that fail because a test wants them to.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cumem_sys::CUresult;

use crate::table::Call;

/// A driver call that is to fail: which, when, and with what code.
///
/// A call that fails has done nothing. Of several faults that would hit a call, the one that was
/// added first answers; the others count the call all the same.
///
/// ```
/// use cumem_sim::{Fault, Sim};
/// use cumem_sys::CUresult;
///
/// let sim = Sim::new();
/// let driver = sim.driver()?;
/// sim.inject(Fault::nth("cuDeviceGetCount", 2, CUresult::CUDA_ERROR_UNKNOWN));
/// assert!(driver.device_get_count().is_ok());
/// assert_eq!(driver.device_get_count().unwrap_err().code(), CUresult::CUDA_ERROR_UNKNOWN);
/// assert!(driver.device_get_count().is_ok());
/// # Ok::<(), cumem_sys::LoadError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing before it is given to a simulated driver"]
pub struct Fault {
    call: Option<Call>,
    when: When,
    remaining: u64,
    effect: Effect,
}

#[derive(Clone, Debug)]
enum When {
    /// From the n-th call on, counted from 1.
    From(u64),
    Random {
        threshold: u64,
        state: u64,
    },
}

/// What a fault does to the call that it hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Answer(CUresult),
    DestroyContext,
}

/// Names a fault that was added, to take it away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(u64);

impl Fault {
    fn new(call: &str, when: When, remaining: u64, effect: Effect) -> Self {
        let call = match call {
            "*" => None,
            name => match Call::named(name) {
                Some(call) => Some(call),
                None => panic!("the simulated driver has no entry point {name:?}"),
            },
        };
        Self {
            call,
            when,
            remaining,
            effect,
        }
    }

    /// The next call fails.
    ///
    /// # Panics
    /// If there is no such entry point.
    pub fn once(call: &str, code: CUresult) -> Self {
        Self::nth(call, 1, code)
    }

    /// The next `count` calls fail.
    ///
    /// # Panics
    /// If there is no such entry point.
    pub fn times(call: &str, count: u64, code: CUresult) -> Self {
        Self::always(call, code).limited_to(count)
    }

    /// The `n`-th call from now fails, counted from 1; calls before and after it don't.
    ///
    /// `call` is the exact name of an entry point, such as `cuMemFree_v2`, or `"*"` for any.
    ///
    /// # Panics
    /// If there is no such entry point, or `n` is 0.
    pub fn nth(call: &str, n: u64, code: CUresult) -> Self {
        assert!(n > 0, "calls are counted from 1");
        Self::new(call, When::From(n), 1, Effect::Answer(code))
    }

    /// Every call fails.
    ///
    /// # Panics
    /// If there is no such entry point.
    pub fn always(call: &str, code: CUresult) -> Self {
        Self::new(call, When::From(1), u64::MAX, Effect::Answer(code))
    }

    /// Each call fails with a probability between 0 and 1. The same seed and the same sequence of
    /// calls give the same failures.
    ///
    /// # Panics
    /// If there is no such entry point, or `probability` is not between 0 and 1.
    pub fn probability(call: &str, probability: f64, seed: u64, code: CUresult) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "a probability lies between 0 and 1"
        );
        let when = When::Random {
            threshold: (probability * (u64::MAX as f64)) as u64,
            state: seed,
        };
        Self::new(call, when, u64::MAX, Effect::Answer(code))
    }

    /// Just before the `n`-th call from now, the context that is current on the calling thread is
    /// destroyed; the call then goes its way.
    ///
    /// # Panics
    /// If there is no such entry point, or `n` is 0.
    pub fn destroys_context(call: &str, n: u64) -> Self {
        assert!(n > 0, "calls are counted from 1");
        Self::new(call, When::From(n), 1, Effect::DestroyContext)
    }

    /// Ends after it has hit that many calls: `Fault::nth(call, 3, code).limited_to(2)` fails the
    /// third and the fourth.
    pub fn limited_to(mut self, count: u64) -> Self {
        self.remaining = count;
        self
    }

    /// Whether it hits this call; counts the call.
    fn hits(&mut self, call: Call) -> bool {
        if self.call.is_some_and(|wanted| wanted != call) || self.remaining == 0 {
            return false;
        }
        let due = match &mut self.when {
            When::From(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            When::Random { threshold, state } => next_random(state) <= *threshold && *threshold > 0,
        };
        if due {
            self.remaining -= 1;
        }
        due
    }

    /// Reads `CALL:always:CODE`, `CALL:nth=N:CODE`, `CALL:p=P:seed=S:CODE`, each with `:times=K` if
    /// wanted.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a fault, such as cuMemAlloc_v2:nth=3:2");
        let mut parts = text.trim().split(':');
        let call = parts.next().ok_or_else(bad)?.trim();
        if call != "*" && Call::named(call).is_none() {
            return Err(format!("the simulated driver has no entry point {call:?}"));
        }
        let (mut nth, mut probability, mut seed, mut times, mut code) = (None, None, 0, None, None);
        for part in parts {
            match part.trim().split_once('=') {
                Some(("nth", value)) => nth = Some(value.parse().map_err(|_| bad())?),
                Some(("p", value)) => {
                    probability = Some(value.parse::<f64>().map_err(|_| bad())?);
                }
                Some(("seed", value)) => seed = value.parse().map_err(|_| bad())?,
                Some(("times", value)) => times = Some(value.parse().map_err(|_| bad())?),
                Some(_) => return Err(bad()),
                None if part.trim() == "always" => {}
                None => code = Some(part.trim().parse::<c_uint>().map_err(|_| bad())?),
            }
        }
        let code = CUresult(code.ok_or_else(bad)?);
        let fault = match (nth, probability) {
            (Some(0), _) => return Err(bad()),
            (Some(n), None) => Self::nth(call, n, code),
            (None, Some(p)) if (0.0..=1.0).contains(&p) => Self::probability(call, p, seed, code),
            (None, None) => Self::always(call, code),
            _ => return Err(bad()),
        };
        Ok(match times {
            Some(times) => fault.limited_to(times),
            None => fault,
        })
    }
}

/// The next number of a sequence that a seed determines (SplitMix64).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The faults of one simulated driver.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    any: AtomicBool,
    list: Mutex<Vec<(FaultId, Fault)>>,
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) -> FaultId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only a number that nobody else gets.
        let id = FaultId(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((id, fault));
        // Relaxed: the flag saves the lock. The call that is to see the fault comes after this one
        // by whatever orders the two threads.
        self.any.store(true, Ordering::Relaxed);
        id
    }

    pub(crate) fn remove(&self, id: FaultId) -> bool {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let before = list.len();
        list.retain(|(one, _)| *one != id);
        // Relaxed: as in `add`.
        self.any.store(!list.is_empty(), Ordering::Relaxed);
        list.len() < before
    }

    pub(crate) fn clear(&self) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.clear();
        // Relaxed: as in `add`.
        self.any.store(false, Ordering::Relaxed);
    }

    /// Counts a call, and says what a fault does to it.
    #[inline]
    pub(crate) fn hit(&self, call: Call) -> Option<Effect> {
        // Relaxed: as in `add`.
        if self.any.load(Ordering::Relaxed) {
            self.hit_any(call)
        } else {
            None
        }
    }

    #[cold]
    fn hit_any(&self, call: Call) -> Option<Effect> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut effect = None;
        for (_, fault) in list.iter_mut() {
            if fault.hits(call) && effect.is_none() {
                effect = Some(fault.effect);
            }
        }
        effect
    }
}
