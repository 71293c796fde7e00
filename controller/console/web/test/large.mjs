// Measures in Chromium what a person waits for with a large fleet. It is started by lab/console.
import assert from 'node:assert/strict'
import { chromium } from 'playwright-core'

const base = process.env.CONSOLE_URL + '/console/'
const machines = Number(process.env.CONSOLE_MACHINES)
const all = machines.toLocaleString('en')
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
})
const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1440, height: 900 } })
const page = await context.newPage()
let bytes = 0
const devtools = await context.newCDPSession(page)
await devtools.send('Network.enable')
devtools.on('Network.loadingFinished', (e) => (bytes += e.encodedDataLength))

await page.goto(base)
await page.getByLabel('Or paste a bearer token').fill(process.env.CONSOLE_TOKEN)
await page.getByRole('button', { name: 'Sign on' }).click()
await page.locator('main h1').waitFor()

async function took(what, run, most) {
  const t = Date.now()
  await run()
  const ms = Date.now() - t
  console.log(`${what}: ${ms} ms`)
  assert.ok(ms <= most, `${what} took ${ms} ms, of at most ${most}`)
}

bytes = 0
await took('first useful paint', async () => {
  await page.goto(base)
  await page.waitForFunction(() => /\d/.test(document.querySelector('[data-number=NEW]')?.textContent ?? ''), undefined, { polling: 20 })
}, 3000)
const shown = machines > 20_000 ? `The first 20,000 of ${all} machines.` : ''
await took('the whole map, from there', () => page.waitForFunction(([n, part]) => {
  const text = document.body.innerText
  return document.querySelector('h1')?.textContent?.includes(n) && (part ? text.includes(part) : !/The first|Loading/.test(text))
}, [all, shown], { timeout: 60_000, polling: 50 }), 60_000)
assert.equal(await page.locator('[data-number=NEW]').textContent(), all, 'numbers count every machine')
console.log(`transferred: ${Math.round(bytes / 1024)} KiB`)
if (process.env.CONSOLE_SHOTS) {
  await page.waitForTimeout(500)
  await page.screenshot({ path: `${process.env.CONSOLE_SHOTS}/large.png` })
}
const now = Date.now()
await page.waitForTimeout(2000)
const field = page.getByLabel('At', { exact: true })
await field.fill(new Date(now - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 19))
await took('the map as it was', async () => {
  await field.press('Enter')
  await page.waitForFunction(() => document.querySelector('h1')?.textContent?.startsWith('The fleet at'), undefined, { polling: 20 })
  await page.waitForFunction((n) => document.querySelector('[data-number=NEW]')?.textContent === n, all, { timeout: 60_000, polling: 20 })
}, 60_000)
await page.goto(base + 'machines')
await page.getByRole('link', { name: 'm-00000', exact: true }).waitFor()
await page.getByLabel('Filter').fill('rack=r7')
await took('answer to a filter', async () => {
  await page.keyboard.press('Enter')
  await page.getByRole('link', { name: 'm-00280', exact: true }).waitFor()
}, 2000)
await page.goto(base + 'machines')
await page.getByRole('link', { name: 'm-00000', exact: true }).waitFor()
const frames = await page.evaluate(async () => {
  const box = document.querySelector('[role=region]')
  const gaps = []
  let last = performance.now()
  for (let i = 0; i < 180; i++) {
    box.scrollTop += 60
    await new Promise(requestAnimationFrame)
    const now = performance.now()
    gaps.push(now - last)
    last = now
  }
  gaps.sort((a, b) => a - b)
  return { median: gaps[90], most: gaps[179], rows: document.querySelectorAll('tbody tr').length }
})
console.log(`scrolling: a frame every ${frames.median.toFixed(0)} ms, at worst ${frames.most.toFixed(0)} ms, ${frames.rows} rows in the page`)
assert.ok(frames.rows < 100, 'rows that nobody sees are not in the page')
const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0)
console.log(`heap: ${Math.round(heap / 2 ** 20)} MiB`)
await browser.close()
process.exit(0)
