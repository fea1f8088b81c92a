//! A registry beside the simplest thing that could be right, over the same operations.
//!
//! Shared by the property tests and the fuzz target.

use std::collections::BTreeMap;
use std::ptr::{NonNull, without_provenance_mut};

use ptr_registry::{Claim, RegisterError, Registry};

/// Buckets of the registry under test: few, so that it fills up.
pub(crate) const BUCKETS: usize = 5;

/// Addresses that one run uses.
pub(crate) const ADDRESSES: usize = 64;

type Value = (usize, usize);

/// What can be done; an address is a number below [`ADDRESSES`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Register(u8),
    Unregister(u8),
    Look(u8),
    Claim(u8),
    /// Ends the oldest open claim.
    End(Ending),
    Iterate,
    Drain(u8),
    ClaimAll(Ending),
}

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Remove,
    Restore,
    RestoreWith,
    Drop,
}

/// Where the addresses of a run lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// A base, and steps of a power of two, as allocators give them out.
    Steps { base: usize, shift: u8 },
    /// Anywhere.
    Scattered { seed: u64 },
    /// All with the same home and the same way from there.
    Colliding,
    /// Around the ends of the address space.
    Extremes,
}

impl Pattern {
    fn address(self, n: usize) -> usize {
        // The inverse of the golden multiplier modulo 2^64: consecutive hashes.
        const INVERSE: u64 = 0xF1DE_83E1_9937_733D;
        match self {
            Self::Steps { base, shift } => base.wrapping_add(n << (shift % 40)),
            Self::Scattered { seed } => {
                (seed ^ n as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93) as usize
            }
            Self::Colliding => (n as u64 + 1).wrapping_mul(INVERSE) as usize,
            Self::Extremes if n.is_multiple_of(2) => n / 2 + 1,
            Self::Extremes => usize::MAX - n / 2,
        }
    }
}

/// Runs the operations on both and compares every answer, and the whole content at the end.
///
/// # Panics
///
/// If the two differ.
pub(crate) fn run(pattern: Pattern, capacity: usize, ops: &[Op]) {
    // The registry is new for every run, and lives in one place while its claims borrow it.
    let live = Registry::<BUCKETS, Value>::with_capacity(capacity);
    let mut run = Run {
        live: &live,
        known: BTreeMap::new(),
        claims: Vec::new(),
        serial: 0,
        capacity,
    };
    for op in ops {
        run.step(pattern, *op);
    }
    run.finish();
}

struct Run<'a> {
    live: &'a Registry<BUCKETS, Value>,
    known: BTreeMap<NonNull<u8>, Value>,
    claims: Vec<Claim<'a, Value>>,
    serial: usize,
    capacity: usize,
}

impl<'a> Run<'a> {
    fn step(&mut self, pattern: Pattern, op: Op) {
        let ptr = |n: u8| {
            let address = pattern.address(usize::from(n) % ADDRESSES);
            NonNull::new(without_provenance_mut(address))
        };
        match op {
            Op::Register(n) => ptr(n).map_or((), |ptr| self.register(ptr)),
            Op::Unregister(n) => ptr(n).map_or((), |ptr| {
                assert_eq!(self.live.unregister(ptr), self.known.remove(&ptr));
                self.look(ptr);
            }),
            Op::Look(n) => ptr(n).map_or((), |ptr| self.look(ptr)),
            Op::Claim(n) => ptr(n).map_or((), |ptr| self.claim(ptr)),
            Op::End(how) => {
                if !self.claims.is_empty() {
                    let claim = self.claims.remove(0);
                    self.end(claim, how);
                }
            }
            Op::Iterate => self.compare(),
            Op::Drain(n) => {
                for (ptr, value) in self.live.drain().take(usize::from(n)) {
                    assert_eq!(self.known.remove(&ptr), Some(value));
                }
            }
            Op::ClaimAll(how) => {
                let mut met = 0;
                let expected = self.known.len();
                for claim in self.live.claims() {
                    assert_eq!(self.known.remove(&claim.ptr()), Some(claim.value()));
                    self.end(claim, how);
                    met += 1;
                }
                assert_eq!(met, expected);
            }
        }
        assert_eq!(
            self.live.has_room(),
            self.known.len() + self.claims.len() < self.capacity
        );
    }

    fn register(&mut self, ptr: NonNull<u8>) {
        if self.known.contains_key(&ptr) {
            return;
        }
        self.serial += 1;
        let value = (self.serial, !self.serial);
        let expected = if ptr.addr().get() == usize::MAX {
            Err(RegisterError::Reserved)
        } else if self.known.len() + self.claims.len() < self.capacity {
            self.known.insert(ptr, value);
            Ok(())
        } else {
            Err(RegisterError::Full {
                capacity: self.capacity,
            })
        };
        assert_eq!(self.live.register(ptr, value), expected);
        self.look(ptr);
    }

    fn look(&self, ptr: NonNull<u8>) {
        assert_eq!(self.live.contains(ptr), self.known.contains_key(&ptr));
        assert_eq!(self.live.get(ptr), self.known.get(&ptr).copied());
    }

    fn claim(&mut self, ptr: NonNull<u8>) {
        let claim = self.live.claim(ptr);
        let expected = self.known.remove(&ptr);
        assert_eq!(claim.as_ref().map(Claim::value), expected);
        if let Some(claim) = claim {
            assert_eq!(claim.ptr(), ptr);
            self.claims.push(claim);
        }
        self.look(ptr);
    }

    fn end(&mut self, claim: Claim<'a, Value>, how: Ending) {
        let (ptr, value) = (claim.ptr(), claim.value());
        // Registered anew meanwhile (or claimed a second time), so the old entry must go.
        let anew = self.known.contains_key(&ptr) || self.claims.iter().any(|c| c.ptr() == ptr);
        match how {
            Ending::Restore if !anew => {
                claim.restore();
                self.known.insert(ptr, value);
            }
            Ending::RestoreWith if !anew => {
                let value = (value.0 + 1, !(value.0 + 1));
                claim.restore_with(value);
                self.known.insert(ptr, value);
            }
            Ending::Drop if !anew => {
                drop(claim);
                self.known.insert(ptr, value);
            }
            _ => assert_eq!(claim.remove(), value),
        }
        self.look(ptr);
    }

    fn compare(&self) {
        assert_eq!(self.live.len(), self.known.len());
        assert_eq!(self.live.is_empty(), self.known.is_empty());
        assert_eq!(self.live.iter().count(), self.known.len());
        for (ptr, value) in self.live {
            assert_eq!(self.known.get(&ptr), Some(&value));
        }
    }

    fn finish(mut self) {
        self.compare();
        for claim in std::mem::take(&mut self.claims) {
            claim.remove();
        }
        let drained: BTreeMap<_, _> = self.live.drain().collect();
        assert_eq!(drained, self.known);
        assert!(self.live.is_empty());
        assert_eq!(self.live.has_room(), self.capacity > 0);
    }
}
