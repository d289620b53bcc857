//! Interval and rectangle indexes of the Rust world behind one C interface, for benchmarks/native.py.
//!
//! A library and not a program, so that one process times all contenders by one clock, in turns, and
//! compares their pairs. Each contender is built over n closed intervals or rectangles of 32-bit integers
//! and answers a batch of points on the calling thread. An answer is one buffer:
//!
//!     array     dtype   length      meaning
//!     events    u32     m           which event a row belongs to: 0 to m - 1 as they came, or in sorted order
//!     offsets   u64     m + 1       where each row's numbers begin in `found`
//!     found     u32     pairs       numbers of the subscriptions, 0 to n - 1, as the crates hold them
//!
//! The buffers are kept from batch to batch, so that only the first one pays for fresh memory. Numbers stay
//! 32 bits wide and rows stay in sorted order: what a contender need not do for an answer, it is not charged.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_char, CStr};
use std::ops::ControlFlow;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use coitrees::{COITree, COITreeSortedQuerent, GenericInterval, Interval, IntervalTree, SortedQuerent};
use geo_index::rtree::sort::{HilbertSort, STRSort};
use geo_index::rtree::{RTree as PackedTree, RTreeBuilder, RTreeIndex};
use rstar::primitives::{GeomWithData, Rectangle};
use superintervals::IntervalMap;

/// Bytes that this library holds: what a structure takes is the growth over its build.
static HELD: AtomicI64 = AtomicI64::new(0);

struct Counting;

// Safety: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size() as i64, Ordering::Relaxed);
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        System.dealloc(memory, layout)
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        System.realloc(memory, layout, size)
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Box2 = GeomWithData<Rectangle<[i32; 2]>, u32>;

enum Structure {
    SuperIntervals(IntervalMap<u32>),
    Coitrees(COITree<u32, u32>),
    GeoIndex(PackedTree<i32>),
    Rstar(rstar::RTree<Box2>),
}

/// A structure, and the answer to its last batch.
pub struct Contender {
    structure: Structure,
    sorts: bool,
    bytes: i64,
    events: Vec<u32>,
    offsets: Vec<u64>,
    found: Vec<u32>,
    keys: Vec<u64>,
    spare: Vec<u64>,
}

/// Where the arrays of an answer are.
#[repr(C)]
pub struct Answer {
    events: *const u32,
    offsets: *const u64,
    found: *const u32,
    pairs: u64,
}

impl Structure {
    /// `x` and `y` are (lows, highs); `y` is empty in 1-D.
    fn build(name: &str, x: (&[i32], &[i32]), y: (&[i32], &[i32])) -> Option<Structure> {
        let n = x.0.len();
        let rectangles = |each: &mut dyn FnMut(i32, i32, i32, i32)| {
            for k in 0..n {
                each(x.0[k], y.0[k], x.1[k], y.1[k]);
            }
        };
        Some(match name {
            "superintervals" => {
                let mut map = IntervalMap::new();
                map.reserve(n);
                for k in 0..n {
                    map.add(x.0[k], x.1[k], k as u32);
                }
                map.build();
                Structure::SuperIntervals(map)
            }
            "coitrees" => {
                let intervals: Vec<_> = (0..n).map(|k| Interval::new(x.0[k], x.1[k], k as u32)).collect();
                Structure::Coitrees(COITree::new(&intervals))
            }
            "geo-index hilbert" | "geo-index str" => {
                let mut builder = RTreeBuilder::<i32>::new(n as u32);
                rectangles(&mut |a, b, c, d| {
                    builder.add(a, b, c, d);
                });
                let hilbert = name == "geo-index hilbert";
                let tree = if hilbert { builder.finish::<HilbertSort>() } else { builder.finish::<STRSort>() };
                Structure::GeoIndex(tree)
            }
            "rstar" => {
                let mut boxes: Vec<Box2> = Vec::with_capacity(n);
                rectangles(&mut |a, b, c, d| {
                    let number = boxes.len() as u32;
                    boxes.push(GeomWithData::new(Rectangle::from_corners([a, b], [c, d]), number));
                });
                Structure::Rstar(rstar::RTree::bulk_load(boxes))
            }
            _ => return None,
        })
    }
}

impl Contender {
    fn answer(&mut self, x: &[i32], y: &[i32]) {
        self.events.clear();
        self.offsets.clear();
        self.found.clear();
        self.offsets.push(0);
        if self.sorts {
            self.sort(x);
        } else {
            self.events.extend(0..x.len() as u32);
        }
        let (offsets, found) = (&mut self.offsets, &mut self.found);
        match &self.structure {
            Structure::SuperIntervals(map) => {
                for &e in &self.events {
                    let value = x[e as usize];
                    // search_stabbed: 8 % slower at 20,000 matches, within the noise at 10 and 400
                    map.search_values(value, value, found);
                    offsets.push(found.len() as u64);
                }
            }
            Structure::Coitrees(tree) if self.sorts => {
                let mut querent = COITreeSortedQuerent::new(tree);
                for &e in &self.events {
                    let value = x[e as usize];
                    querent.query(value, value, |hit| found.push(number(hit)));
                    offsets.push(found.len() as u64);
                }
            }
            Structure::Coitrees(tree) => {
                for &e in &self.events {
                    let value = x[e as usize];
                    tree.query(value, value, |hit| found.push(number(hit)));
                    offsets.push(found.len() as u64);
                }
            }
            Structure::GeoIndex(tree) => {
                for &e in &self.events {
                    let (a, b) = (x[e as usize], y[e as usize]);
                    found.extend(tree.search(a, b, a, b));
                    offsets.push(found.len() as u64);
                }
            }
            Structure::Rstar(tree) => {
                for &e in &self.events {
                    let point = [x[e as usize], y[e as usize]];
                    let _ = tree.locate_all_at_point_int(&point, |hit| -> ControlFlow<()> {
                        found.push(hit.data);
                        ControlFlow::Continue(())
                    });
                    offsets.push(found.len() as u64);
                }
            }
        }
    }

    /// Events in the order of their values: a radix sort by 11 bits, over as many bits as the batch has.
    fn sort(&mut self, x: &[i32]) {
        let least = x.iter().copied().min().unwrap_or(0);
        let most = x.iter().copied().max().unwrap_or(0);
        let bits = 32 - (most.wrapping_sub(least) as u32).leading_zeros();
        self.keys.clear();
        let key = |(e, &v): (usize, &i32)| (v.wrapping_sub(least) as u32 as u64) << 32 | e as u64;
        self.keys.extend(x.iter().enumerate().map(key));
        self.spare.resize(x.len(), 0);
        for shift in (32..32 + bits).step_by(11) {
            let mut starts = [0usize; 2048];
            for key in &self.keys {
                starts[(key >> shift) as usize & 2047] += 1;
            }
            let mut start = 0;
            for slot in &mut starts {
                start += std::mem::replace(slot, start);
            }
            for &key in &self.keys {
                let slot = &mut starts[(key >> shift) as usize & 2047];
                self.spare[*slot] = key;
                *slot += 1;
            }
            std::mem::swap(&mut self.keys, &mut self.spare);
        }
        self.events.extend(self.keys.iter().map(|&key| key as u32));
    }
}

/// The number of a subscription: trees with and without SIMD give hits of different types.
fn number(hit: &impl GenericInterval<u32>) -> u32 {
    *hit.metadata()
}

unsafe fn values<'a>(start: *const i32, n: u64) -> &'a [i32] {
    if start.is_null() { &[] } else { std::slice::from_raw_parts(start, n as usize) }
}

/// Build a contender by name, a trailing " sorted" meaning that it sorts each batch; null if there is none.
///
/// # Safety
/// The bounds are arrays of n integers; those of y are null in 1-D.
#[no_mangle]
pub unsafe extern "C" fn peer_build(
    name: *const c_char, n: u64,
    x_lows: *const i32, x_highs: *const i32, y_lows: *const i32, y_highs: *const i32,
) -> *mut Contender {
    let Ok(name) = CStr::from_ptr(name).to_str() else { return ptr::null_mut() };
    let before = HELD.load(Ordering::Relaxed);
    let x = (values(x_lows, n), values(x_highs, n));
    let y = (values(y_lows, n), values(y_highs, n));
    let Some(structure) = Structure::build(name.trim_end_matches(" sorted"), x, y) else {
        return ptr::null_mut();
    };
    Box::into_raw(Box::new(Contender {
        structure,
        sorts: name.ends_with(" sorted"),
        bytes: HELD.load(Ordering::Relaxed) - before,
        events: Vec::new(),
        offsets: Vec::new(),
        found: Vec::new(),
        keys: Vec::new(),
        spare: Vec::new(),
    }))
}

/// Answer a batch of m events; the arrays live until the contender's next batch.
///
/// # Safety
/// The contender comes from `peer_build`; the columns are arrays of m integers, y null in 1-D.
#[no_mangle]
pub unsafe extern "C" fn peer_match(contender: *mut Contender, m: u64, x: *const i32, y: *const i32) -> Answer {
    let contender = &mut *contender;
    contender.answer(values(x, m), values(y, m));
    Answer {
        events: contender.events.as_ptr(),
        offsets: contender.offsets.as_ptr(),
        found: contender.found.as_ptr(),
        pairs: contender.found.len() as u64,
    }
}

/// Bytes that the structure alone holds.
///
/// # Safety
/// The contender comes from `peer_build`.
#[no_mangle]
pub unsafe extern "C" fn peer_bytes(contender: *const Contender) -> i64 {
    (*contender).bytes
}

/// Let a contender go.
///
/// # Safety
/// The contender comes from `peer_build` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn peer_free(contender: *mut Contender) {
    drop(Box::from_raw(contender));
}
