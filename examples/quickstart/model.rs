//! A graph convolutional network that learns how much each edge carries.

use crate::karate::{self, LEADERS, PEOPLE};
use burn::module::{Module, Param};
use burn::tensor::activation::log_softmax;
use sparsegrad::gallery::{self, Normalization};
use sparsegrad::prelude::*;

pub const HIDDEN: usize = 8;

/// Two layers. The people have no features, so the first weights are one learned vector for each of them.
#[derive(Module, Debug)]
pub struct Gcn {
    /// One number for each direction of each edge, and for each person: the logarithm of how much passes.
    pub edges: SparseParam<2>,
    pub embedding: Param<Tensor<2>>,
    pub output: Param<Tensor<2>>,
}

impl Gcn {
    pub fn new(device: &Device) -> Self {
        // A loop at each person: what they think themselves counts too.
        let mut edges = karate::edges();
        edges.extend((0..PEOPLE).map(|person| (person, person)));
        let ones = Tensor::ones([edges.len()], device);
        let adjacency = gallery::adjacency(PEOPLE, &edges, ones).expect("edges between people");
        let random = |shape| Tensor::random(shape, Distribution::Normal(0.0, 0.3), device);
        Self {
            edges: SparseParam::new(adjacency.map_values(|ones| ones * 0.0)),
            embedding: Param::from_tensor(random([PEOPLE, HIDDEN])),
            output: Param::from_tensor(random([HIDDEN, 2])),
        }
    }

    /// The loss, and the logarithms of the probabilities of both clubs for each person.
    pub fn forward(&self) -> (Tensor<1>, Tensor<2>) {
        forward(&self.edges.val(), self.embedding.val(), self.output.val())
    }
}

/// The same as a function of the parameters, which a gradient check can vary.
pub fn forward(edges: &SparseTensor<2>, embedding: Tensor<2>, output: Tensor<2>) -> (Tensor<1>, Tensor<2>) {
    // Each row a softmax over a person's friends.
    let shares = edges.map_values(Tensor::exp);
    let shares =
        gallery::normalized_adjacency(&shares, Normalization::RandomWalk).expect("an adjacency matrix is square");
    let hidden = shares.matmul(embedding).tanh();
    let clubs = log_softmax(shares.matmul(hidden.matmul(output)), 1);

    // The two leaders are in their own clubs...
    let known = (0..2).map(|club| clubs.clone().slice([LEADERS[club]..LEADERS[club] + 1, club..club + 1]));
    let known = Tensor::cat(known.collect(), 0).mean().neg();
    // ... people listen to those who end up in the same club ...
    let probabilities = clubs.clone().exp();
    let together = sddmm(edges.pattern(), probabilities.clone(), probabilities);
    let apart = together.map_values(|p| p.neg() + 1.0).values().clone();
    let apart = (shares.values().clone() * apart).sum().div_scalar(PEOPLE as f64);
    // ... and no friendship counts for much more or less than another without reason.
    let reason = edges.values().clone().powi_scalar(2).mean();
    (known + apart + reason * 0.1, clubs)
}
