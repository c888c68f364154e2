'use strict';

const { OpenAI } = require('openai');
const { run, step } = require('./scenarios.js');

const QUESTION = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'Say it.' }] };

const error = (error) => ({
  error: error.constructor.name,
  status: error.status ?? null,
  code: error.code ?? null,
  message: error.message,
});

const client = ({ url, retries, timeout }) =>
  new OpenAI({ apiKey: 'sk-1', baseURL: `${url}/v1`, maxRetries: retries, timeout });

// Its own `idempotencyKey` is sent by no header: the key is given as one.
const keyed = (key) => ({ headers: { 'Idempotency-Key': key } });

run({
  async complete(options) {
    const asked = client(options).chat.completions.create(QUESTION, keyed(options.key)).withResponse();
    return asked.then(
      ({ data, response }) => ({
        text: data.choices[0].message.content,
        replayed: response.headers.get('idempotent-replayed'),
      }),
      error,
    );
  },

  // A step for every chunk, as it comes.
  async stream(options) {
    const said = [];
    try {
      const chunks = await client(options).chat.completions.create({ ...QUESTION, stream: true }, keyed(options.key));
      for await (const chunk of chunks) {
        said.push(chunk.choices[0].delta.content);
        step(said.at(-1));
      }
    } catch (cause) {
      return { said, ...error(cause) };
    }
    return { said };
  },

  // What the SDK's own option comes to.
  async own(options) {
    return client(options)
      .chat.completions.create(QUESTION, { idempotencyKey: options.key })
      .then((data) => ({ text: data.choices[0].message.content }), error);
  },
});
