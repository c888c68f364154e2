'use strict';

const Stripe = require('stripe');
const { run, step } = require('./scenarios.js');

const told = (answer) => ({
  id: answer.id,
  replayed: answer.lastResponse.headers['idempotent-replayed'] ?? null,
});

const error = (error) => ({
  error: error.type,
  status: error.statusCode ?? null,
  code: error.code ?? null,
  message: error.message,
  advice: error.headers?.['stripe-should-retry'] ?? null,
});

run({
  // Pays with a key that the SDK makes, or once for every amount with the key
  // that is given.
  async pay({ host, port, retries, timeout, key, amounts }) {
    const options = { host, port, protocol: 'http', maxNetworkRetries: retries, timeout, telemetry: false };
    const stripe = new Stripe('sk_test_1', options);
    const results = [];
    for (const amount of amounts) {
      const asked = stripe.paymentIntents.create({ amount, currency: 'eur' }, key ? { idempotencyKey: key } : {});
      results.push(await asked.then(told, error));
      step(results.length);
    }
    return results;
  },
});
