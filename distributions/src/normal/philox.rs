//! Philox4x32-10: a keyed permutation of counters whose outputs are as good as random.

/// The random numbers of a seed and a stream, by their place.
#[derive(Debug, Clone, Copy)]
pub struct Philox {
    pub seed: u64,
    pub stream: u64,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

impl Philox {
    /// The four words at a counter. The seed is the key; the stream is the upper half of the counter.
    #[inline(always)]
    pub fn block(&self, counter: u64) -> [u32; 4] {
        let low_high = |x: u64| [x as u32, (x >> 32) as u32];
        let [mut k0, mut k1] = low_high(self.seed);
        let ([mut a, mut b], [mut c, mut d]) = (low_high(counter), low_high(self.stream));
        for _ in 0..10 {
            let [low_a, high_a] = low_high(u64::from(a) * u64::from(MULTIPLIERS[0]));
            let [low_c, high_c] = low_high(u64::from(c) * u64::from(MULTIPLIERS[1]));
            [a, b, c, d] = [high_c ^ b ^ k0, low_c, high_a ^ d ^ k1, low_a];
            (k0, k1) = (k0.wrapping_add(WEYL[0]), k1.wrapping_add(WEYL[1]));
        }
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123, `kat_vectors`.
    #[test]
    fn known_answers() {
        let zeros = Philox { seed: 0, stream: 0 }.block(0);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = Philox { seed: u64::MAX, stream: u64::MAX }.block(u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = Philox { seed: 0x299f_31d0_a409_3822, stream: 0x0370_7344_1319_8a2e };
        assert_eq!(pi.block(0x85a3_08d3_243f_6a88), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
