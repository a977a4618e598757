/* DPDK's rte_ring, single producer and single consumer, behind four C functions. Only its inline functions are used, so no
 * library of DPDK is linked: the ring is laid out here as rte_ring_init does it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <rte_ring.h>

/* capacity: a power of two; one place less can be filled. */
void *peer_rte_ring_new(size_t capacity) {
    size_t bytes = sizeof(struct rte_ring) + capacity * sizeof(void *);
    struct rte_ring *ring = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(bytes, RTE_CACHE_LINE_SIZE));
    if (ring == NULL)
        return NULL;
    memset(ring, 0, bytes);
    ring->flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
    ring->prod.sync_type = RTE_RING_SYNC_ST;
    ring->cons.sync_type = RTE_RING_SYNC_ST;
    ring->size = (uint32_t)capacity;
    ring->mask = (uint32_t)capacity - 1;
    ring->capacity = ring->mask;
    return ring;
}

void peer_rte_ring_free(void *ring) { free(ring); }

bool peer_rte_ring_push(void *ring, uint64_t word) { return rte_ring_sp_enqueue(ring, (void *)(uintptr_t)word) == 0; }

bool peer_rte_ring_pop(void *ring, uint64_t *word) {
    void *object;
    if (rte_ring_sc_dequeue(ring, &object) != 0)
        return false;
    *word = (uint64_t)(uintptr_t)object;
    return true;
}
