// Measures in Chromium what a person waits for with a large fleet. It is started by lab/bench/console, which prints the figures.
import { readFile } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'

const base = process.env.CONSOLE_URL + '/console/'
const all = Number(process.env.CONSOLE_MACHINES).toLocaleString('en')
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
async function ask(what) {
  console.log(JSON.stringify({ ask: what }))
  await answers.next()
}
const figure = (name, value) => console.log(JSON.stringify({ figure: name, value }))
const long = { timeout: 120_000, polling: 20 }

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--enable-precise-memory-info'],
})
const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 } })
// The page itself notes when a condition first holds after a frame, so that the tool's own delay is not in it.
await context.addInitScript(() => {
  const marks = (window.marks = {})
  window.when = (name, holds) => {
    const look = () => (holds() ? requestAnimationFrame(() => (marks[name] ??= performance.now())) : requestAnimationFrame(look))
    look()
  }
  window.number = (state) => document.querySelector(`[data-number=${state}]`)?.textContent ?? ''
  window.painted = () => {
    const c = document.querySelector('canvas')
    return c !== null && c.width > 0 && c.height > 0
  }
  window.when('useful', () => /\d/.test(window.number('IDLE')))
  window.when('map', window.painted)
})
const page = await context.newPage()
page.on('pageerror', (e) => console.error('the page: ' + e.message))
const mark = async (name) => {
  await page.waitForFunction((n) => window.marks[n] !== undefined, name, long)
  return page.evaluate((n) => window.marks[n], name)
}
async function median(times, run) {
  const out = []
  for (let i = 0; i < times; i++) out.push(await run())
  return out.sort((a, b) => a - b)[Math.floor(times / 2)]
}

await page.goto(base)
await page.getByLabel('Or paste a bearer token').fill(process.env.CONSOLE_TOKEN)
await page.getByRole('button', { name: 'Sign on' }).click()
await page.locator('main h1').waitFor()

// --- paints
const paint = () => page.evaluate(() => new Promise((done) => {
  new PerformanceObserver((l) => done(l.getEntries()[0].startTime)).observe({ type: 'paint', buffered: true })
}))
figure('empty page', await median(5, async () => {
  await page.goto('data:text/html,<h1>1</h1>')
  return paint()
}))
const useful = []
figure('map', await median(5, async () => {
  await page.goto(base)
  const drawn = await mark('map')
  useful.push(await mark('useful'))
  return drawn
}))
figure('useful', useful.sort((a, b) => a - b)[2])
await page.waitForFunction((n) => document.querySelector('h1')?.textContent?.includes(n), all, long)

// --- filters
const only = page.getByLabel('Only')
const answered = async (name, holds, begin) => {
  await page.evaluate(([n, source]) => {
    delete window.marks[n]
    window.begun = performance.now()
    window.when(n, new Function('return ' + source))
  }, [name, holds])
  await begin()
  return (await mark(name)) - (await page.evaluate(() => window.entered ?? window.begun))
}
await page.evaluate(() => addEventListener('keydown', (e) => e.key === 'Enter' && (window.entered = performance.now()), true))
await only.fill('site=site-3')
figure('map filter', await answered('filtered', `/^[\\d,]+ of [\\d,]+ machines\\.$/m.test(document.querySelector('main').innerText)`,
  () => page.keyboard.press('Enter')))
await page.goto(base)
await mark('useful')
const then = new Date(Date.now() - 2000)
const local = new Date(then.getTime() - then.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
await page.waitForTimeout(3000)
const field = page.getByLabel('At', { exact: true })
await page.evaluate(() => addEventListener('keydown', (e) => e.key === 'Enter' && (window.entered = performance.now()), true))
await field.fill(local)
figure('past', await answered('past', `/^The fleet at/.test(document.querySelector('h1').textContent) && window.painted() && /\\d/.test(window.number('IDLE'))`,
  () => field.press('Enter')))
await page.goto(base)
await mark('useful')
const search = page.getByLabel('Find a machine or an operation')
const serial = process.env.CONSOLE_SERIAL
await page.evaluate(() => document.querySelector('.search input').addEventListener('input', () => (window.entered = performance.now()), true))
figure('search', await median(5, async () => {
  await search.fill('')
  await page.waitForFunction(() => !document.querySelector('.search [role=option]'), null, long)
  return answered('found', `document.querySelector('.search [role=option]') !== null`, () => search.fill(serial))
}))
await page.goto(base + 'machines')
await page.locator('tbody tr').first().waitFor()
await page.evaluate(() => addEventListener('keydown', (e) => e.key === 'Enter' && (window.entered = performance.now()), true))
await page.getByLabel('Filter').fill('rack=r7')
figure('filter', await answered('listed', `document.querySelector('tbody tr')?.textContent.includes('fill-0000007')`,
  () => page.keyboard.press('Enter')))

// --- frames
async function frames(name, where) {
  const gaps = await page.evaluate(async (selector) => {
    const box = selector ? document.querySelector(selector) : document.scrollingElement
    const gaps = []
    let last = performance.now()
    for (let i = 0; i < 180; i++) {
      if (i % 60 === 59) box.scrollTop = 0
      box.scrollTop += 60
      await new Promise(requestAnimationFrame)
      const now = performance.now()
      gaps.push(now - last)
      last = now
    }
    return gaps
  }, where)
  figure(`${name} frames`, 1000 / (gaps.reduce((a, b) => a + b) / gaps.length))
  figure(`${name} slowest`, Math.max(...gaps))
}
await page.goto(base + 'machines')
await page.locator('tbody tr').nth(10).waitFor()
await page.waitForTimeout(2000)
await frames('list', '[role=region]')
await page.goto(base)
await mark('map')
await page.waitForTimeout(2000)
await frames('map', '')

// --- changes on the screen
await page.evaluate(() => {
  window.seen = []
  const look = () => {
    const n = Number(window.number('NEW').replaceAll(',', ''))
    while (window.seen.length < n) window.seen.push(Date.now())
    requestAnimationFrame(look)
  }
  look()
})
await ask('change')
await page.waitForTimeout(5000)
const probes = 20
for (let i = 0; i < probes; i++) {
  await ask('probe')
  await page.waitForTimeout(700 + Math.random() * 600)
}
await page.waitForFunction((n) => window.seen.length >= n, probes, long)
await ask('stop')
console.log(JSON.stringify({ seen: await page.evaluate(() => window.seen) }))

// --- memory
await ask('change')
await page.waitForTimeout(Number(process.env.CONSOLE_MEMORY_MS))
await ask('stop')
figure('heap', (await page.evaluate(() => performance.memory.usedJSHeapSize)) / 2 ** 20)
const { processInfo } = await (await browser.newBrowserCDPSession()).send('SystemInfo.getProcessInfo')
let tab = 0
for (const p of processInfo.filter((p) => p.type === 'renderer')) {
  const status = await readFile(`/proc/${p.id}/status`, 'utf8')
  tab = Math.max(tab, Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0) / 1024)
}
figure('tab', tab)
await browser.close()
process.exit(0)
