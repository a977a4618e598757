// moodycamel::ConcurrentQueue behind four C functions: one producer and one consumer, each with its token.
#include <concurrentqueue.h>
#include <cstdint>
#include <new>

using Queue = moodycamel::ConcurrentQueue<uint64_t>;

struct Pair {
    Queue queue;
    moodycamel::ProducerToken producer;
    moodycamel::ConsumerToken consumer;
    explicit Pair(size_t capacity) : queue(capacity, 1, 0), producer(queue), consumer(queue) {}
};

extern "C" void *moodycamel_new(size_t capacity) { return new (std::nothrow) Pair(capacity); }
extern "C" void moodycamel_free(void *pair) { delete static_cast<Pair *>(pair); }

extern "C" bool moodycamel_push(void *pair, uint64_t word) {
    Pair *p = static_cast<Pair *>(pair);
    return p->queue.try_enqueue(p->producer, word);
}

extern "C" bool moodycamel_pop(void *pair, uint64_t *word) {
    // The producer's token names the sub-queue: no search for one that has something.
    Pair *p = static_cast<Pair *>(pair);
    return p->queue.try_dequeue_from_producer(p->producer, *word);
}
