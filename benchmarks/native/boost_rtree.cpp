// Boost's packed R-tree behind the C interface of src/lib.rs, whose head has the arrays of an answer.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <boost/geometry.hpp>
#include <boost/geometry/geometries/box.hpp>
#include <boost/geometry/geometries/point.hpp>
#include <boost/geometry/index/rtree.hpp>
#include <boost/iterator/function_output_iterator.hpp>

namespace bg = boost::geometry;
namespace bgi = boost::geometry::index;

namespace {

std::int64_t held = 0;

// Counts the bytes of the tree's nodes, as the Rust side counts its own.
template <class T>
struct Counting {
    using value_type = T;
    Counting() = default;
    template <class U>
    Counting(const Counting<U>&) {}
    T* allocate(std::size_t n) {
        held += static_cast<std::int64_t>(n * sizeof(T));
        return std::allocator<T>().allocate(n);
    }
    void deallocate(T* memory, std::size_t n) {
        held -= static_cast<std::int64_t>(n * sizeof(T));
        std::allocator<T>().deallocate(memory, n);
    }
    template <class U>
    bool operator==(const Counting<U>&) const { return true; }
    template <class U>
    bool operator!=(const Counting<U>&) const { return false; }
};

using Point = bg::model::point<std::int32_t, 2, bg::cs::cartesian>;
using Box = bg::model::box<Point>;
using Value = std::pair<Box, std::uint32_t>;
// 16 per node is the usual choice; the constructor from a range packs them.
using Tree = bgi::rtree<Value, bgi::quadratic<16>, bgi::indexable<Value>, bgi::equal_to<Value>, Counting<Value>>;

}  // namespace

struct Contender {
    Tree tree;
    std::int64_t bytes;
    std::vector<std::uint32_t> events;
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint32_t> found;
};

struct Answer {
    const std::uint32_t* events;
    const std::uint64_t* offsets;
    const std::uint32_t* found;
    std::uint64_t pairs;
};

extern "C" Contender* peer_build(const char* name, std::uint64_t n, const std::int32_t* x_lows,
                                 const std::int32_t* x_highs, const std::int32_t* y_lows,
                                 const std::int32_t* y_highs) {
    if (std::strcmp(name, "boost rtree") != 0 || y_lows == nullptr) return nullptr;
    std::vector<Value> values;
    values.reserve(n);
    for (std::uint64_t k = 0; k < n; k++) {
        Box box(Point(x_lows[k], y_lows[k]), Point(x_highs[k], y_highs[k]));
        values.emplace_back(box, static_cast<std::uint32_t>(k));
    }
    const std::int64_t before = held;
    auto* contender = new Contender{Tree(values), 0, {}, {}, {}};
    contender->bytes = held - before;
    return contender;
}

extern "C" Answer peer_match(Contender* c, std::uint64_t m, const std::int32_t* x, const std::int32_t* y) {
    c->events.clear();
    c->offsets.clear();
    c->found.clear();
    c->offsets.push_back(0);
    for (std::uint64_t k = 0; k < m; k++) {
        auto deliver = [c](const Value& hit) { c->found.push_back(hit.second); };
        c->tree.query(bgi::intersects(Point(x[k], y[k])), boost::make_function_output_iterator(deliver));
        c->events.push_back(static_cast<std::uint32_t>(k));
        c->offsets.push_back(c->found.size());
    }
    return {c->events.data(), c->offsets.data(), c->found.data(), c->found.size()};
}

extern "C" std::int64_t peer_bytes(const Contender* contender) { return contender->bytes; }

extern "C" void peer_free(Contender* contender) { delete contender; }
